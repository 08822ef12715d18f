package holt

import "strings"

// The transports of OCI images, see containers-transports(5): a registry, a layout on the
// daemon's machine, or a file written by docker save there.
const (
	OCIRegistry = "docker://"
	OCILayout   = "oci:"
	OCIArchive  = "docker-archive:"
)

// OCIReference reports whether a template is an OCI image, not a name or a recipe.
func OCIReference(template string) bool {
	return strings.HasPrefix(template, OCIRegistry) || strings.HasPrefix(template, OCILayout) || strings.HasPrefix(template, OCIArchive)
}
