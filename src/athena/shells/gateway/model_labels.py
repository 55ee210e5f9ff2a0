"""The names of models that stand as labels in the gateway's numbers."""

from __future__ import annotations

from athena.shells.config import Config, Router


class ModelLabels:
    """Only models that the configuration names are counted one by one: all others, which clients made up, are `other`."""

    def __init__(self) -> None:
        self._per_model = False
        self._router = Router(Config())
        self._named: frozenset[str] = frozenset()

    def use(self, config: Config, router: Router) -> None:
        """Label by this configuration from now on."""
        self._per_model = config.metrics.per_model
        self._router = router
        self._named = frozenset(model for _, model in router.named_targets())

    def label(self, model: str) -> str:
        """The label of an upstream's model."""
        if not self._per_model:
            return "other"
        is_known = model in self._named or any(entry.model == model for entry in self._router.listed_models())
        return model if is_known else "other"
