"""The feature stores of several corpora as one, without copying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ctsan.errors import StoreError
from ctsan.video.store import FeatureStore, Manifest, StoredFeatures


class FeatureStoreUnion(FeatureStore):
    """Random access to the maps of several folders of one recipe."""

    def __init__(self, stores: Sequence[FeatureStore], ids: Sequence[Mapping[str, str]]) -> None:
        """A view of the clips that `ids` names.

        Args:
            ids: for each store, from a clip's id there to its id here, which no other clip has.

        Raises:
            StoreError: two stores were made in different ways, or are one folder with a clip of both corpora.
        """
        first = stores[0]
        recipe = first.manifest.recipe
        for store in stores[1:]:
            if store.manifest.recipe != recipe:
                raise StoreError(
                    f"{store.folder}: these features ({_described(store)}) were made in another way than "
                    f"those in {first.folder} ({_described(first)}). Make both by one 'ctsan features'."
                )
        _check_folders(stores, ids)
        self.folder = first.folder
        self.folders = tuple(store.folder for store in stores)
        self._places = {
            new: (store, old)
            for store, own in zip(stores, ids, strict=True)
            for old, new in own.items()
            if old in store
        }
        self.manifest = Manifest(
            recipe=recipe,
            clips={new: store.manifest.clips[old] for new, (store, old) in self._places.items()},
            unreadable={
                own[old]: reason
                for store, own in zip(stores, ids, strict=True)
                for old, reason in store.manifest.unreadable.items()
                if old in own
            },
        )

    def __getitem__(self, clip_id: str) -> StoredFeatures:
        """Raises:
        StoreError: no folder holds the clip, or its file is damaged.
        """
        if clip_id not in self._places:
            reason = self.manifest.unreadable.get(clip_id, "it was not in the corpora when they were made")
            raise StoreError(f"{folders_of(self)}: no features of clip '{clip_id}': {reason}")
        store, own = self._places[clip_id]
        return store[own]


def open_stores(folders: Sequence[Path], ids: Sequence[Mapping[str, str]]) -> FeatureStore:
    """The features in one folder, or in several as one; `ids` as for `FeatureStoreUnion`.

    Raises:
        StoreError: a folder holds no features, or they do not go together.
    """
    stores = [FeatureStore(folder) for folder in folders]
    return stores[0] if len(stores) == 1 else FeatureStoreUnion(stores, ids)


def folders_of(store: FeatureStore) -> str:
    """Where features are, for messages."""
    return ", ".join(map(str, store.folders if isinstance(store, FeatureStoreUnion) else [store.folder]))


def _check_folders(stores: Sequence[FeatureStore], ids: Sequence[Mapping[str, str]]) -> None:
    """One folder may hold two corpora, but one clip of an id only: another corpus' would be taken for it."""
    clips: dict[Path, set[str]] = {}
    for store, own in zip(stores, ids, strict=True):
        held = clips.setdefault(store.folder.resolve(), set())
        if both := sorted(held & own.keys()):
            raise StoreError(
                f"{store.folder}: one folder for two corpora that both have a clip '{both[0]}', and it holds "
                "the features of one of them only. Make each corpus a folder of its own."
            )
        held.update(own)


def _described(store: FeatureStore) -> str:
    recipe = store.manifest.recipe
    height, width = recipe.grid
    mirrored = ", mirrored frames too" if recipe.mirrored else ""
    return f"{recipe.backbone}, {height}×{width}×{recipe.channels}{mirrored}"
