"""The identity host, `app.identity.factory:create_app()`: sessions, user tokens, and the keys that
verify tokens."""
