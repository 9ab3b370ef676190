"""What a node does with cluster calls: its files, its actions, its operators."""
