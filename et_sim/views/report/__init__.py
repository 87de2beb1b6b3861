"""A run as one self-contained HTML page: no network, no library, no other file.

The page consists of tables and drawings without scripts, so that it prints and opens anywhere; only the
timeline that zooms and pans needs a script of a few hundred lines (`timeline.js`). A plotting library would
add some megabytes to every page, and be slow: it keeps an object per bar, where the script walks arrays, and
draws what a pixel can show.
"""
