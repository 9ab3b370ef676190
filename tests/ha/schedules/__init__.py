"""Named schedules: each a sequence of events that once broke a promise, or would."""
