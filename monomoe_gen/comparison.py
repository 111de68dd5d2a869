"""What a kernel's output looks like next to full precision, and next to the mirror reference."""

from __future__ import annotations

from dataclasses import dataclass

# Of every token, against full precision on the same weights; by the shape's activations.
COSINE_MIN = {"fp8": 0.998, "bf16": 0.9999}
# How far below the mirror's own cosine a token may lie where that is the bound (`required_cosine`):
# two correct kernels add in different orders, so that an h or an element of the output may be
# rounded the other way, which moves the cosine by less than this.
COSINE_SLACK = 1e-4
MIRROR_REL_L2 = 2e-3  # of every token, against the mirror that follows the kernel's close calls
MIRROR_SHARE = 0.999  # of the elements of a token count: equal to that mirror up to the last bit


def required_cosine(activations: str, definition: float) -> float:
    """The least cosine to full precision of a token that the mirror reference gives ``definition``.

    Where sums are few and short, rounding where the definition of the operator says may alone cost
    more than COSINE_MIN leaves, and no kernel can do better. A NaN changes nothing.
    """
    usual = COSINE_MIN[activations]
    return definition - COSINE_SLACK if definition < usual else usual


def in_words(activations: str, required: float) -> str:
    """What a `required_cosine` demands, with the reason where it is not that of COSINE_MIN."""
    if required == COSINE_MIN[activations]:
        return f"at least {required} is required"
    return f"at least {required:.5f} is required: the definition's own rounding allows no more"


@dataclass(frozen=True)
class Accuracy:
    """An output against full precision; None stands for what is not a finite number.

    The lowest cosine and the largest relative L2 of a token, the largest absolute error of an
    element.
    """

    cosine: float | None
    rel_l2: float | None
    max_abs: float | None


@dataclass(frozen=True)
class Agreement:
    """An output against the mirror that follows its close calls (`agreement.follow`).

    ``rel_l2`` is the largest of a token, None if that is not a finite number. ``share`` of the
    elements are equal or neighbouring bf16 numbers. ``close_calls`` values of h were rounded the
    other way.
    """

    rel_l2: float | None
    share: float
    close_calls: int


@dataclass(frozen=True)
class Comparison:
    """One validation case: the kernel, and beside it the published quantized operator.

    Full precision is fp32 (its sums fp64) with the weights as the kernel has them, ``dequantized``,
    and as they were before quantization, ``unquantized``. ``largest`` is the largest magnitude of
    the former's output, which max_abs has to be seen beside. ``activations`` are the shape's.
    ``required_cosine`` is the lowest of the tokens' bounds, None stands for COSINE_MIN; a token
    whose own bound is higher cannot fall far below it within MIRROR_REL_L2.
    """

    tokens: int
    distribution: str
    routing: str
    largest: float
    kernel_dequantized: Accuracy
    kernel_unquantized: Accuracy
    operator_dequantized: Accuracy
    operator_unquantized: Accuracy
    agreement: Agreement
    activations: str = "fp8"
    required_cosine: float | None = None

    @property
    def problem(self) -> str:
        """What is wrong with the kernel in this case alone; empty if nothing is."""
        cosine, rel_l2 = self.kernel_dequantized.cosine, self.agreement.rel_l2
        if cosine is None or rel_l2 is None:
            return "the output is not finite, or zero where it should not be"
        usual = COSINE_MIN[self.activations]
        required = usual if self.required_cosine is None else self.required_cosine
        if cosine < required:
            return f"cosine {cosine:.5f} against FP32, {in_words(self.activations, required)}"
        if rel_l2 > MIRROR_REL_L2:
            limit = f"at most {MIRROR_REL_L2:.0e} is allowed"
            return f"relative L2 {rel_l2:.1e} against the mirror, {limit}"
        return ""
