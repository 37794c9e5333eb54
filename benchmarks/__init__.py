"""Measurements. They print numbers and never fail because of one; errors do make them fail."""
