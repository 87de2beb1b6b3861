"""Convolutional networks of images, whose replicas train on images of their own."""
