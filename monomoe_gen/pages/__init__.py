"""The report: measurements as one self-contained HTML page with plots.

`load` reads the data, `analysis` makes numbers of it, `result_plots` and `search_plots` make plots
(they need the extra [report]), `tables` makes rows,
`timelines` finds drawings, and `page` puts them together.
"""
