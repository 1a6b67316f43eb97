"""What scores a document, and all that serving needs: f(x)."""

from typing import Final

RANKERS: Final[dict[str, str]] = {
    "linear": "clickprism.rankers.linear:Linear",
    "mlp": "clickprism.rankers.mlp:MLP",
    "attention": "clickprism.rankers.attention:Attention",
    "lambdamart": "clickprism.rankers.lambdamart:LambdaMART",
}
