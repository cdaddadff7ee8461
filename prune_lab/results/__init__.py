"""What runs leave behind, and what is made of it: records, curves, tables, figures and the report."""
