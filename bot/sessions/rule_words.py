"""Rules as people read them, in every language. Pure."""

from __future__ import annotations

from bot import i18n
from bot.sessions.recurrence import WORKDAYS, Series


def described(language: str, series: Series) -> str:
    """How often and when: "every weekday at 08:00"."""
    rule = series.rule
    parts = [_frequency(language, series)]
    if not rule.is_elapsed:
        hours, minutes = rule.hours or (series.begins.hour,), rule.minutes
        times = [
            f"{hour:02}:{minute:02}"
            for hour in hours
            for minute in minutes or (series.begins.minute,)
        ]
        parts.append(i18n.text(language, "repeat.at", times=", ".join(times)))
    if rule.until is not None:
        parts.append(i18n.text(language, "repeat.until", when=f"{rule.until:%Y-%m-%d %H:%M}"))
    return "".join(parts)


def _frequency(language: str, series: Series) -> str:
    rule = series.rule
    if rule.frequency in {"DAILY", "WEEKLY"} and rule.weekdays == WORKDAYS and rule.interval == 1:
        return i18n.text(language, "repeat.workdays")
    words = i18n.text(language, f"repeat.{rule.frequency.lower()}", count=rule.interval)
    names = i18n.text(language, "reminder.days").split()
    which = i18n.text(language, "repeat.which").split()
    if rule.months:
        months = ", ".join(map(str, rule.months))
        words += i18n.text(language, "repeat.months", months=months)
    if rule.days:
        words += _days(language, rule.days)
    weekdays = rule.weekdays
    if rule.frequency == "WEEKLY" and not weekdays:
        weekdays = ((0, series.begins.weekday()),)
    if weekdays:
        # The last one stands at the end of the list, and is reached from there.
        said = [
            i18n.text(language, "repeat.nth", which=which[n - (n > 0)], day=names[day])
            if n
            else names[day]
            for n, day in weekdays
        ]
        words += i18n.text(language, "repeat.weekdays", days=", ".join(said))
    if rule.frequency in {"MONTHLY", "YEARLY"} and not (rule.days or rule.weekdays):
        months = "" if rule.months or rule.frequency == "MONTHLY" else str(series.begins.month)
        words += i18n.text(language, "repeat.months", months=months) if months else ""
        words += i18n.text(language, "repeat.days", days=str(series.begins.day))
    return words


def _days(language: str, days: tuple[int, ...]) -> str:
    if days == (-1,):
        return i18n.text(language, "repeat.last_day")
    # The last one stands behind the others.
    said = sorted(days, key=lambda day: (day < 0, day))
    return i18n.text(language, "repeat.days", days=", ".join(map(str, said)))
