"""Pictures of results: functions from a frame, or an array, to an `alt.Chart`. Leaves out which ones to draw.

Data columns get plain names (`x`, `y`, `value`, ...), so that a dot or a bracket in the name of an axis never meets
Vega's own reading of field names, and user text stands in data and titles only, never in an expression.
"""

from sweep.report.charts.approach import approach
from sweep.report.charts.capacity import requests_that_fit
from sweep.report.charts.curves import lines
from sweep.report.charts.histogram import distribution
from sweep.report.charts.look import save
from sweep.report.charts.ridges import distributions
from sweep.report.charts.tiles import heatmap
from sweep.report.charts.timeline import timeline
from sweep.report.charts.waterfall import waterfall

__all__ = [
    "approach",
    "distribution",
    "distributions",
    "heatmap",
    "lines",
    "requests_that_fit",
    "save",
    "timeline",
    "waterfall",
]
