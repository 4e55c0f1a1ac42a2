"""What is published here is planned quickly."""

from tests.support.spec_cases import plan_quickly, whole_search  # noqa: F401 (read by pytest)
