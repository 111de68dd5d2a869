"""The names of the routing patterns; `workload.rotation` draws them and says what each is."""

TIMED_ROUTINGS = ("uniform", "zipf", "same", "disjoint")
ROUTINGS = (*TIMED_ROUTINGS, "ties")  # ties are never timed: they do not move to fresh experts
