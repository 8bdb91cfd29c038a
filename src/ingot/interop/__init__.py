"""Exchange of columns with other libraries; each optional package is imported in one module."""
