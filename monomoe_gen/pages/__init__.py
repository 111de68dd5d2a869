"""The report: measurements as one self-contained HTML page with plots.

`analysis` turns records into numbers, `figures` numbers into plots (it needs the extra [report]),
`tables` numbers into rows, and `page` puts them together.
"""
