"""One node: the asyncio shell around the core, its transport, its coordination store, its configuration."""
