package main

import (
	"context"

	"holt"
	"holt/internal/cli"
	"holt/internal/image"
)

func buildImage(ctx context.Context, at cli.Place, template string, progress func(cli.Progress)) (holt.Image, error) {
	guest, err := guestBinary()
	if err != nil {
		return holt.Image{}, err
	}
	store, err := image.Open(at.ImageDir, image.Options{GuestBinary: guest})
	if err != nil {
		return holt.Image{}, err
	}
	built, err := store.Build(ctx, template, func(p image.Progress) {
		progress(cli.Progress{Step: p.Step, Stage: p.Stage, Detail: p.Detail, Fraction: p.Fraction})
	})
	return built.Image, err
}

func bootLater(ctx context.Context, at cli.Place, built holt.Image, shape holt.Shape) error {
	store, err := image.Open(at.ImageDir, image.Options{})
	if err != nil {
		return err
	}
	return store.BootLater(ctx, built.Template, built.Digest, shape)
}

func listImages(_ context.Context, at cli.Place) ([]holt.Image, error) {
	guest, _ := guestBinary() // it tells which snapshots are of another holt
	store, err := image.Open(at.ImageDir, image.Options{GuestBinary: guest})
	if err != nil {
		return nil, err
	}
	return store.List()
}

func deleteImage(ctx context.Context, at cli.Place, ref string) (holt.Image, error) {
	store, err := image.Open(at.ImageDir, image.Options{})
	if err != nil {
		return holt.Image{}, err
	}
	return store.Delete(ctx, ref)
}

func pruneImages(ctx context.Context, at cli.Place) ([]holt.Image, error) {
	store, err := image.Open(at.ImageDir, image.Options{})
	if err != nil {
		return nil, err
	}
	return store.Prune(ctx)
}
