"""A run as one HTML page that needs nothing else: no network, no library, no other file.

The page is made of tables and drawings that need no script, so that it prints and reads anywhere; only the
timeline that zooms and pans is drawn by a script of a few hundred lines (`timeline.js`). A plotting library
would do that with some megabytes in every page, and slowly: it keeps an object per bar, where the script
walks arrays, and draws what a pixel can show.
"""
