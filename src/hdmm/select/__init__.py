"""Which strategy to measure: OPT_HDMM and its operators. It sees a workload and the kind of noise, never data.

In: a `Problem` (what to minimise), over cells that its queries distinguish, and a `Search` (one restart: its random
numbers, deadline and progress). Out: a `Strategy`. One file per operator, named after it: `opt_0`, `opt_x`, `opt_plus`,
`opt_m`, `opt_g`, `opt_b`, `opt_r`, `opt_s`; `operators` says which suit a workload, `opt_hdmm` gives them turns, and
`restarts` runs these, in this process or others. They share `minimize` (the one L-BFGS-B), `terms` (a workload as
coefficients and grams), `theta` and `tree` (p-Identities and their derivatives), and the losses `loss` and `pairs`.
`goal`, `worst` and `worst_optimum` are for objectives other than the total; `orbits` divides a workload by exchangeable
values, and `gaussian_optimum` finds the least error of all strategies. Open `problem`, then `opt_0`.
"""
