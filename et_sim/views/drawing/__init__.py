"""What pictures of a run share: the nodes they show, their tracks, flows and colours; the SVG timeline."""
