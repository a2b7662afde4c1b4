"""The address of a host that the edge serves."""
from config.edge_url import edge_url
from config.settings import Settings


def test_the_port_is_named_unless_browsers_add_it():
    assert edge_url(Settings(edge_port=443), "shop.example") == "https://shop.example"
    assert edge_url(Settings(edge_port=8443), "shop.example") == "https://shop.example:8443"
