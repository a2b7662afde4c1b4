"""The templates registry: names, versions, what a name means, and the rule of start commands.

It decides who may publish or change a name and what a create gets for it. It makes no sandbox, and
a warm image of a shape is not a template: that is `services.hosts.warm_images`.
"""
