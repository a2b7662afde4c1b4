"""Apps as services and operators meet them: their names, what is shown of them, the seals
of their variables.

It decides whose an app is, what it may be called, and what is told of it to whom. What is served at
its address is not decided here, but in the room above; where requests go is in
`services.deploys.edges`.
"""
