"""The systems that the paper compares CT-SAN with."""
