"""What is made of a results folder: estimates, verdicts, charts and the page."""
