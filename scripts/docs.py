"""Write the generated documents: config/confidant.toml and docs/configuration.md."""

from __future__ import annotations

from pathlib import Path

from bot import settings

ROOT = Path(__file__).resolve().parents[1]


def documents() -> dict[str, str]:
    """Each generated file's name and content."""
    plugins = settings.installed_channels()
    model = settings.config_model(plugins)
    return {
        "config/confidant.toml": settings.reference_toml(model),
        "docs/configuration.md": settings.reference_markdown(
            model, settings.plain_names(plugins, model)
        ),
    }


def main() -> None:
    """Write those that changed."""
    for name, text in documents().items():
        path = ROOT / name
        if not path.is_file() or path.read_text("utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"wrote {name}")  # noqa: T201


if __name__ == "__main__":
    main()
