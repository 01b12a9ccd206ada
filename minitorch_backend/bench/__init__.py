"""The race: the same work on minitorch and on native torch, in turns, as a ratio with its uncertainty.

``minitorch bench`` is the command. What a case is says ``bench.case``, how it is timed ``bench.race``, what is
concluded from the times ``bench.statistics``. The cases themselves are in the source tree, in benchmarks/cases.
"""
