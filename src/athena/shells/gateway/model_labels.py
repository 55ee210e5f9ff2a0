"""The names of models that stand as labels in the gateway's numbers."""

from __future__ import annotations

from athena.shells.config import Config, Router


class ModelLabels:
    """Only models that the configuration names are counted one by one: all others, which clients made up, are `other`."""

    def __init__(self) -> None:
        self._per_model = False
        self._router = Router(Config())
        self._named: frozenset[str] | None = None
        """The models that have labels of their own; found when the first is asked for."""

    def use(self, config: Config, router: Router) -> None:
        """Label by this configuration from now on."""
        self._per_model = config.metrics.per_model
        self._router = router
        self._named = None

    def label(self, model: str) -> str:
        """The label of an upstream's model."""
        if not self._per_model:
            return "other"
        if self._named is None:
            listed = frozenset(entry.model for entry in self._router.listed_models())
            self._named = listed.union(model for _, model in self._router.named_targets())
        return model if model in self._named else "other"
