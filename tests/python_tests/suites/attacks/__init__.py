"""Of the attacks: what is measured, judged and said."""
