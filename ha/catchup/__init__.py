"""How a joiner gets what it lacks: history, queue by queue copies, the end of a snapshot, the throttle."""
