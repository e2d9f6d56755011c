"""Draws what the devices of a probe showed over time as a small SVG file, which needs no library to be shown."""

from xml.sax.saxutils import escape

from tuner.probe.series import Series

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 30, 40
"""The margins around the lines, in the same units as width and height."""
COLOURS = ("#2584ad", "#b0731a", "#76839a", "#cf4358")
MOST_POINTS = 400
"""A device's line has at most this many points; more would not be seen at this width."""
MOST_MARKS = 200


def utilisation_svg(series: Series, title: str) -> str:
    """Return a picture of each device's utilisation in percent, with the window and the ends of iterations."""
    end_s = max((one.t_s for one in series.readings), default=0.0) or 1.0

    def across(t_s: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * t_s / end_s, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12" role="img"><title>{escape(title)}</title>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" fill="#1d2433">{escape(title)}</text>',
    ]
    if series.window_s:
        begin, end = map(across, series.window_s)
        height = HEIGHT - TOP - BOTTOM
        parts.append(f'<rect x="{begin}" y="{TOP}" width="{end - begin:.1f}" height="{height}" fill="#dcebf3"/>')
    parts += [_upright(across(t_s)) for t_s in series.marks_s[-MOST_MARKS:]]
    parts += [_level(share) for share in (0, 25, 50, 75, 100)]
    for place, device in enumerate(series.devices):
        colour = COLOURS[place % len(COLOURS)]
        times, values = series.of(device, "util_pct", MOST_POINTS)
        points = " ".join(f"{across(t_s)},{_height(value)}" for t_s, value in zip(times, values, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.2"/>')
        x = LEFT + 90 * place
        parts.append(f'<text x="{x}" y="{HEIGHT - 6}" fill="{colour}">{escape(device)}</text>')
    parts.append(
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end" fill="#565f70">'
        f"utilisation, %, over {end_s:.0f} s; shaded: the window; lines: ends of iterations</text></svg>"
    )
    return "\n".join(parts)


def _height(share: float) -> float:
    return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(max(share, 0.0), 100.0) / 100.0, 1)


def _upright(x: float) -> str:
    return f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#76839a" stroke-dasharray="2 3"/>'


def _level(share: int) -> str:
    y = _height(share)
    line = f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#d5dae4"/>'
    return f'{line}<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end" fill="#565f70">{share}</text>'
