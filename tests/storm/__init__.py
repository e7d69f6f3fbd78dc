"""Storms: seeded faults over real servers, while somebody watches every word of status."""
