"""A read-only union of the feature stores of several corpora."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ctsan.errors import StoreError
from ctsan.video.store import FeatureStore, Manifest, StoredFeatures


class FeatureStoreUnion(FeatureStore):
    """Random access to the maps of several stores with the same recipe."""

    def __init__(self, stores: Sequence[FeatureStore], ids: Sequence[Mapping[str, str]]) -> None:
        """A view of the clips in `ids`.

        Args:
            ids: for each store, from a clip's id in the store to its id in the union, which is unique.

        Raises:
            StoreError: the recipes differ, or two corpora with the same clip id share a folder.
        """
        first = stores[0]
        recipe = first.manifest.recipe
        for store in stores[1:]:
            if store.manifest.recipe != recipe:
                raise StoreError(
                    f"{store.folder}: these features ({_recipe_summary(store)}) were made in another way "
                    f"than those in {first.folder} ({_recipe_summary(first)}). Make both by one 'ctsan "
                    "features'."
                )
        _check_folders(stores, ids)
        self.folder = first.folder
        self.folders = tuple(store.folder for store in stores)
        self._locations = {
            union_id: (store, store_id)
            for store, store_ids in zip(stores, ids, strict=True)
            for store_id, union_id in store_ids.items()
            if store_id in store
        }
        self.manifest = Manifest(
            recipe=recipe,
            clips={
                union_id: store.manifest.clips[store_id]
                for union_id, (store, store_id) in self._locations.items()
            },
            unreadable={
                store_ids[store_id]: reason
                for store, store_ids in zip(stores, ids, strict=True)
                for store_id, reason in store.manifest.unreadable.items()
                if store_id in store_ids
            },
        )

    def __getitem__(self, clip_id: str) -> StoredFeatures:
        """Read the features of a clip from the store of its corpus.

        Raises:
            StoreError: no store has the clip, or its file is damaged.
        """
        if clip_id not in self._locations:
            reason = self.manifest.unreadable.get(clip_id, "it was not in the corpora when they were made")
            raise StoreError(f"{folders_of(self)}: no features of clip '{clip_id}': {reason}")
        store, store_id = self._locations[clip_id]
        return store[store_id]


def open_stores(folders: Sequence[Path], ids: Sequence[Mapping[str, str]]) -> FeatureStore:
    """The store of one folder, or the union of several; `ids` as for `FeatureStoreUnion`.

    Raises:
        StoreError: a folder is not a feature store, or the stores cannot be combined.
    """
    stores = [FeatureStore(folder) for folder in folders]
    return stores[0] if len(stores) == 1 else FeatureStoreUnion(stores, ids)


def folders_of(store: FeatureStore) -> str:
    """The folder or folders of a store, for messages."""
    return ", ".join(map(str, store.folders if isinstance(store, FeatureStoreUnion) else [store.folder]))


def _check_folders(stores: Sequence[FeatureStore], ids: Sequence[Mapping[str, str]]) -> None:
    """Check that no two corpora with a clip id in common share a folder, which has one entry per id.

    Raises:
        StoreError: two corpora do.
    """
    ids_by_folder: dict[Path, set[str]] = {}
    for store, store_ids in zip(stores, ids, strict=True):
        folder_ids = ids_by_folder.setdefault(store.folder.resolve(), set())
        if shared := sorted(folder_ids & store_ids.keys()):
            raise StoreError(
                f"{store.folder}: one folder for two corpora that both have a clip '{shared[0]}', and it has "
                "the features of one of them only. Make each corpus a folder of its own."
            )
        folder_ids.update(store_ids)


def _recipe_summary(store: FeatureStore) -> str:
    recipe = store.manifest.recipe
    height, width = recipe.grid
    mirrored = ", mirrored frames too" if recipe.mirrored else ""
    return f"{recipe.backbone}, {height}×{width}×{recipe.channels}{mirrored}"
