"""The OpenAPI document and its page, made of the routes and schemas of the host that serves
them."""
