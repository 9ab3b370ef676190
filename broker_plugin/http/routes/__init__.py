"""One file for each kind of object; ``broker_plugin.http.app`` puts them together."""
