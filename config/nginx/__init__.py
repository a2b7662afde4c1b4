"""The configuration of the edge, the nginx before everything that browsers and clients reach, and
how it is started."""
