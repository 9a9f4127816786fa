"""Measures Stepwell, its peers, and the limit that the database sets; run by ``bin/bench``."""
