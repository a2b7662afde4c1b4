"""Names as clients, receivers and configuration write them: `node_id` is `nodeId` there."""


def camel_case(name: str) -> str:
    """The outer name of a field that is called `name` inside."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
