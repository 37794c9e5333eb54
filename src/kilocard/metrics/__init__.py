"""Exposition text in (a page becomes a LoadSample), names of what we export out. Pure."""
