"""Apps as services and operators meet them: their names, what is shown of them, their variables."""
