"""The public API process, `app.api.factory:create_app()`: one file of routes for each resource."""
