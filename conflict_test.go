package holt_test

import (
	"reflect"
	"strings"
	"testing"

	"holt"
)

// TestConflictCodes: what the API lists is what there is.
func TestConflictCodes(t *testing.T) {
	field, _ := reflect.TypeFor[holt.PathConflict]().FieldByName("Code")
	told := strings.Split(field.Tag.Get("enum"), ",")
	for _, code := range []holt.ConflictCode{holt.ChangedSince, holt.AttributesChangedSince, holt.MovedSince, holt.RemovedSince, holt.ReturnedSince, holt.ChangedMeanwhile,
		holt.BothChanged, holt.BothChangedLines, holt.BothChangedAttributes, holt.BothMade, holt.BothRenamed, holt.BothUnlinked,
		holt.RemovedHere, holt.RemovedThere, holt.RenamedHere, holt.NameTaken, holt.DirectoryMissing, holt.DirectoryNotEmpty, holt.InsideItself} {
		if len(told) == 0 || told[0] != string(code) || code.Sentence() == string(code) {
			t.Fatalf("%s is not what is told here: %v; or has no sentence: %q", code, told, code.Sentence())
		}
		told = told[1:]
	}
	if len(told) > 0 {
		t.Errorf("told and not there: %v", told)
	}
}
