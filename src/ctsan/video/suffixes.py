"""By which endings of their names videos and pictures are found in a folder."""

from __future__ import annotations

from importlib.util import find_spec

VIDEO_SUFFIXES = frozenset(
    {
        *(".mp4", ".m4v", ".mov", ".qt", ".3gp", ".3g2", ".f4v"),  # MPEG-4
        *(".mkv", ".webm", ".avi", ".divx", ".wmv", ".asf", ".flv", ".ogv", ".ogm", ".rm", ".rmvb", ".mxf"),
        *(".mpg", ".mpeg", ".mpe", ".m2v", ".vob", ".ts", ".mts", ".m2ts", ".dv"),  # discs and camcorders
        *(".gif", ".apng"),
    }
)
HEIC_SUFFIXES = frozenset({".heic", ".heif", ".hif"})  # read by the extra ctsan[heic]
PICTURE_SUFFIXES = HEIC_SUFFIXES | {  # a picture is a clip of one frame
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".avif", ".bmp", ".tif", ".tiff"),
}
CLIP_SUFFIXES = VIDEO_SUFFIXES | PICTURE_SUFFIXES

COMPANION_SUFFIXES = (
    frozenset(  # of files that go with clips or describe them: nobody expects them in a search
        {
            *(".txt", ".md", ".rst", ".log", ".nfo", ".html", ".htm", ".pdf", ".ini", ".db", ".url", ".lnk"),
            *(".json", ".jsonl", ".csv", ".tsv", ".xml", ".yaml", ".yml", ".toml"),
            *(".srt", ".vtt", ".ass", ".ssa", ".sub", ".idx", ".sup", ".edl"),
            *(
                ".xmp",
                ".aae",
                ".thm",
                ".lrv",
                ".ifo",
                ".bup",
                ".npy",
            ),  # of cameras, phones, discs, and features
            *(".part", ".crdownload", ".tmp", ".lock", ".md5", ".sha256"),
        }
    )
)


def reads_heic() -> bool:
    """Whether the extra ctsan[heic] is installed."""
    return find_spec("pillow_heif") is not None
