"""Teach a machine to describe, search and question your own videos (CT-SAN, Yu et al., CVPR 2017)."""

__version__ = "0.1.0"
