"""What every figure and table shows, for a reader who sees nothing else."""

from __future__ import annotations

_POINTS = (
    "Points are means over seeds, bars their standard errors (spread between seeds and evaluation error), open markers "
    "models whose training did not converge."
)


CAPTIONS: dict[str, str] = {
    "fig1": (
        "Loss against depth L, both axes logarithmic, for input spectra j^-a and teacher spectra j^-b; colours and "
        "markers stand for (a, b) in all panels. Top, copying the matching token's label, (a) linear and (b) softmax"
        " attention; a loss that is not above zero is drawn at its standard error. Bottom, averaging the labels of "
        "the two tokens nearest to the query, (c) linear and (d) softmax attention; the loss is divided by that at "
        "the shallowest depth, since spectra differ by more than depth changes, so that at a = 0 the curves of all b"
        " coincide. The panels of a row share their scale. Peng et al. report (a) a power law that depends on the "
        "spectrum, (b) that one layer suffices, (c) a plateau and (d) an inverse-depth approach to a floor. "
        f"{_POINTS}"
    ),
    "fig2": (
        "The tasks on which attention models of different depth are compared, each in one sampled context of eight "
        "tokens in two dimensions, labelled by the same linear teacher, y = beta^T x. (a) Easy: the query x_test is "
        "one of the tokens, and the target y* its label. (b) Difficult: the target is the mean label of the k = 2 "
        "tokens of largest cosine with the query, that is, smallest angle (dotted). Colours are labels; rings mark "
        "the selected tokens; the targets stand above the panels. The sample's seed was chosen for legibility."
    ),
    "fig3": (
        "Linear attention copying the matching token's label: the loss falls with depth L as a power law whose "
        "exponent depends on the input spectrum j^-a and the teacher spectrum j^-b. (a) b varies at a = 2. (b) a "
        "varies at b = 2. Dashed: fits c L^-alpha, exponent and standard error in the legend. (c) Loss of single "
        "spectral modes j at a = b = 2 over their loss at zero prediction; values below 2 % are drawn at the "
        f"dashed line: strong modes (small j) are learned first. {_POINTS}"
    ),
    "fig4": (
        "Softmax attention copying the matching token's label: loss against depth L, (a) for input spectra j^-a "
        "at b = 0 and (b) for teacher spectra j^-b at a = 0, beside the loss of predicting zero (dotted). The legend "
        "gives the loss of the shallowest model. A loss that is not above zero is drawn at its standard error. (c) "
        "Share of its attention that the query pays to the matching token, mean over layers, contexts and seeds, "
        "along training at (a, b) = (1, 0), for a few depths; 1 is attention to that token alone. A seed that stopped "
        f"earlier keeps its last value. {_POINTS}"
    ),
    "fig5": (
        "Linear attention averaging the labels of the two tokens nearest to the query: loss against depth L, (a) "
        "for teacher spectra j^-b at a = 0 and (b) for input spectra j^-a at b = 0. The legend gives the plateau,"
        f" the mean loss of the two deepest models. {_POINTS}"
    ),
    "fig6": (
        "Softmax attention averaging the labels of the two tokens nearest to the query. (a, b) Loss against depth"
        " L for teacher spectra j^-b at a = 0 and input spectra j^-a at b = 0; dashed: fits L_0 + c L^-alpha, "
        "exponent and standard error in the legend. (c) Shared error C_L and (d) disagreement A_L - C_L of the "
        "layers, for spectra (a, b); the loss is C_L + (A_L - C_L)/L. (e, f) The losses of (a, b) less their "
        "fitted floors L_0: straight lines for a power law; points not above the floor are not drawn, and the "
        f"floor's own error is not in the bars. {_POINTS}"
    ),
    "fig7": (
        "Loss of single spectral modes j of softmax attention averaging the labels of the two tokens nearest to "
        "the query, at input eigenvalues 1/j and a flat teacher spectrum. (a) R_j against depth L. (b) R_j less "
        "its limit, over that value at the shallowest depth: curves that coincide are modes learned in parallel. "
        "The limit is the floor of a fit to each mode by itself; where a loss is below it, the line passes over that "
        f"depth. {_POINTS}"
    ),
    "fig8": (
        "Why linear attention meets a loss floor when it averages the labels of the tokens nearest to the query: one "
        "sampled context of the difficult task (that of Figure 2b), turned so that the query is horizontal. (a) The "
        "target t (green) is the mean of the two selected inputs (black). Its predictable part OC (blue) is the mean "
        "of t over 65,536 contexts with this query. Diamond: its approximation c Sigma x_test for many dimensions; in "
        "two, as here, the mean does not depend on the query's length, and the approximation differs from it. The "
        "residual Ct (red, dashed) depends on the context. (b) The same vectors among the t of 200 other contexts with "
        "this query. Linear attention can follow only the predictable part, so that at least the mean square of the "
        "residual remains as a floor. The sample's seed was chosen for legibility."
    ),
    "fig9": (
        "Softmax attention with inputs and labels in one residual stream, updated at every layer, averaging the labels "
        "of the two tokens nearest to the query at flat spectra (a, b) = (0, 0). (a) Loss against depth L; dashed: fit "
        "L_0 + c L^-alpha, exponent and standard error in the legend. (b) Shared error C_L and (c) disagreement A_L - "
        f"C_L of the layers; the loss is C_L + (A_L - C_L)/L. {_POINTS}"
    ),
    "fig10": (
        "Softmax attention with a value matrix of its own for every layer, averaging the labels of the two tokens "
        "nearest to the query at flat spectra (a, b) = (0, 0). (a) Loss against depth L; dashed: fit L_0 + c L^-alpha, "
        "exponent and standard error in the legend. (b) Shared error C_L and (c) disagreement A_L - C_L of the layers; "
        f"the loss is C_L + (A_L - C_L)/L. {_POINTS}"
    ),
    "fig11": (
        "Softmax attention that updates its context, too: context tokens attend to each other with a trained scale "
        "m, common to all layers. Averaging the labels of the (a) two and (b) sixteen tokens nearest to the query at"
        " flat spectra: loss against depth L; dashed: fits L_0 + c L^-alpha, exponent and standard error in the "
        "legend. (c, d) The trained m of the same models, with the spread between seeds; at L = 1 it changes no "
        "prediction and is not drawn; dotted in (d): the value that Peng et al. give for all depths, with which ours"
        f" need not agree: only m times the value matrix W_v acts, and the scale of theirs is not given. {_POINTS}"
    ),
    "fig12": (
        "Attention A_1 between the context tokens in the first layer of a model of depth L = 2 that updates its "
        "context, for one context, trained to average the labels of the (a) two and (b) sixteen tokens nearest to the "
        "query. Above each panel: rho of the fit A_1 = rho I + (1 - rho) 11^T / P, 1 for a token that attends to "
        "itself alone and 0 for uniform attention, as the mean over contexts and seeds with its standard error, beside "
        "the value of Peng et al. and the root mean square that the fit leaves (residual). Weights below a hundredth "
        "of the uniform 1/P have the lightest colour."
    ),
    "fig13": (
        "How far the attention of softmax models, averaged over layers, is from the two tokens nearest to the query: "
        "E_L(c) = |mean of p - p*|^2 in context c. (a) Percentiles over contexts for the shallowest and the deepest "
        "model, as means over seeds. (b) Their difference; above zero the deeper model selects better. Shaded: "
        "standard errors (bootstrap over contexts, the same for both depths, and spread between seeds)."
    ),
    "fig14": (
        "Softmax attention averaging the labels of the k tokens nearest to the query, at input spectra j^-a and "
        "teacher spectra j^-b, for (a, b) in the legends. Loss against depth L for (a) k = 2 and (b) k = 16; "
        "dashed: fits L_0 + c L^-alpha, exponent and standard error in the legend. (c) Shared error C_L and (d) "
        f"disagreement A_L - C_L of the layers. {_POINTS}"
    ),
    "training_length_softmax": (
        "How the depth law of softmax attention depends on how long the models are trained (difficult task, k = "
        "2, flat spectra). (a) Loss against depth L after each training length, the learning rate annealed at its"
        " end; a model that had converged earlier keeps its loss. (b) Exponent alpha and (c) floor L_0 of the "
        "fits L_0 + c L^-alpha, with standard errors; shaded: 95 % bootstrap intervals of the final models; "
        "dotted: alpha = 1. Lengths at which the fit is not determined are named. Open markers: models that had not "
        "converged by then, and fits that rest on such models."
    ),
    "training_length_linear": (
        "How the depth law of linear attention on the easy task depends on how long the models are trained. A "
        "panel for each spectrum (a, b): loss against depth L after each training length, the learning rate "
        "annealed at its end; a model that had converged earlier keeps its loss. Last panel: fitted exponent "
        "alpha over zeta = (a + b - 1)/a with standard errors; dotted: the exponents of constrained (1) and free "
        "(2) polynomials; points of one length stand a little beside each other. Lengths at which the fit is not "
        "determined are named. Open markers: models that had not converged by then, and fits that rest on such models."
    ),
    "table1": (
        "Loss floors at k = 2 for spectra (a, b): softmax attention from the fit of its loss, linear attention from "
        "the plateau of its deepest models, with the values of Peng et al. The two models differ in size (dimension "
        "and context length), as published; the last ratio sets softmax against the theoretical linear floor at its "
        "own size. Differences are of ours from the published value, in per cent of it, where ours have the "
        "published size."
    ),
    "table2": (
        "Fitted exponents of the loss against depth for linear attention on the easy task at spectra (a, b), "
        "between the exponents zeta = (a + b - 1)/a of constrained and 2 zeta of free polynomials, with the "
        "values of Peng et al. Standard errors are the fit's, from how far the losses are from the law; the 95 % "
        "interval is that of the bootstrap over evaluation contexts and, where there are several, seeds."
    ),
    "table3": (
        "Loss floor of linear attention averaging the labels of the k tokens nearest to the query at spectra (a, "
        "b): Monte Carlo theory, measured plateau of the deepest models and their difference, with the values of "
        "Peng et al. The theory has the population covariance in the place of the context's, which holds the selected "
        "tokens: a measured plateau may lie below it."
    ),
    "table4": (
        "Fits L_0 + c L^-alpha of the loss against depth L for softmax attention averaging the labels of the k "
        "tokens nearest to the query, at spectra (a, b), with the values of Peng et al."
    ),
    "table5": (
        "Exponents of the gap L_0 - C_L = c L^-alpha between the loss floor and the error shared by the layers of"
        " softmax attention (difficult task, k = 2) at spectra (a, b), with the values of Peng et al."
    ),
    "modes": (
        "How linear attention (easy task, a = b = 2) and softmax attention (difficult task, a = 1, b = 0, k = 2) learn "
        "single spectral modes j as depth L grows. Linear: loss R_j over its value lambda_j omega_j at zero "
        "prediction. Softmax: R_j less its limit, the floor of a fit to the mode alone, over that value at the "
        "shallowest depth. First rows: the depth at which a mode's normalised loss falls below 50 % and 10 %, "
        "interpolated between depths in log-log; errors are those of the losses, the limit taken as exact. Depths that "
        "grow with j mean strong modes first, equal depths all in parallel. Last rows: spread, the standard deviation "
        "over the modes that both models have, at each depth; its mean leaves out the shallowest depth, where the "
        "softmax curves are 1 by construction. The smaller the spread, the closer the curves are to one."
    ),
    "comparison": (
        "Every number that Peng et al. (arXiv 2610.11063) publish on the depth laws of linear and softmax "
        "attention, and their claims in words made into numbers, beside ours: loss floors, plateaus, exponents of "
        "the loss against depth at spectra (a, b) and target size k; ours are means over seeds. Differences are in "
        "per cent of the published value or, in units of 1, as they are; then over both standard errors in "
        "quadrature. The verdict follows one rule with tolerances fixed beforehand (docs/comparison.md); a number "
        "that was not measured well enough, or that depends on what the paper does not give, cannot be decided. At "
        "a = 0 the rows of all b are one measurement."
    ),
    "comparison_summary": (
        "Verdicts on the published numbers and claims of Peng et al. (arXiv 2610.11063) on the loss of linear and "
        "softmax attention against depth, counted for every place of the paper: how many of our numbers agree "
        "within tolerances fixed beforehand, differ, or cannot be decided (not run, not determined, or dependent on "
        "what the paper does not give). At a = 0 the rows of all b are one measurement."
    ),
    "like_for_like": (
        "Loss floors of linear and softmax attention averaging the labels of the two tokens nearest to the query, "
        "at equal dimension d and context length P, for spectra (a, b). Softmax: the floor L_0 fitted over depth, "
        "or the loss of the deepest models where it says so; linear: the plateau, the mean loss of the two deepest "
        "models. The published ratio (Table 1 of Peng et al.) compares linear attention at d = 128, P = 1024 with "
        "softmax attention at d = 16, P = 64."
    ),
    "depth_share": (
        "How much of the loss R_1 of a single layer depth removes, for softmax and linear attention averaging the "
        "labels of the k tokens nearest to the query, at spectra (a, b): in the limit of great depth, (R_1 - "
        "L_0)/R_1 with L_0 from the fit R_L = L_0 + c L^-alpha, and at the deepest models trained, (R_1 - R_L)/R_1. "
        "Standard errors are of differences between models evaluated on the same contexts. Linear attention has a "
        "plateau and no fit."
    ),
    "b_collapse": (
        "With a flat input spectrum (a = 0) neither attention sees the teacher, so the loss at teacher spectrum "
        "j^-b is that at b = 0 times the mean of j^-b over j = 1..d, exactly, at every depth. Ours, at the deepest "
        "models of the difficult task (k = 2), is exact by construction: models at a = 0 are trained once for all "
        "b, because the training loss is the same up to a factor. The informative part are the floors of Table 1 of "
        "Peng et al. at a = 0: their ratio to the first, and the floor at b = 0 that each of them implies."
    ),
    "depth_range": (
        "Fits R_L = L_0 + c L^-alpha of the loss of softmax attention averaging the labels of the k tokens nearest "
        "to the query, at spectra (a, b), over different ranges of depth L: the exponent and the floor with "
        "standard errors. Where there are too few depths, or they do not determine the law, the note says why; an "
        "exponent of 0.01 there is the least that is fitted. At a = 0 the rows of all b are one measurement."
    ),
    "depth_range_exponents": (
        "How the exponent alpha of fits R_L = L_0 + c L^-alpha to the loss of softmax attention (difficult task: "
        "averaging the labels of the k tokens nearest to the query) depends on the shallowest depth fitted, for "
        "spectra (a, b); fits run from there to the deepest models. (a) One exponent zero, k = 2. (b) Both above "
        "zero at k = 2, and k = 16. Bars are standard errors of the fits, dotted alpha = 1, open markers fits of "
        "models not all of which have converged; fits that the depths do not determine are left out and counted in "
        "the legend. At a = 0 all b have the same curve."
    ),
}
"""By the name of the figure or table."""
