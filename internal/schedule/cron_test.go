package schedule

import (
	"strings"
	"testing"
	"time"

	"holt"
)

const zoned = "2006-01-02T15:04:05-07:00"

// TestSummerTime: a fixed time of day is due once a day, whatever the clock does. An interval follows real time.
func TestSummerTime(t *testing.T) {
	for _, c := range []struct{ cron, zone, after, want string }{
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		{"0,30 2,3 * * *", "Europe/Berlin", "2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00 2026-03-30T02:00:00+02:00"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00", "2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T02:10:00+01:00", "2026-10-26T02:30:00+01:00"},
		{"0 3 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00", "2026-10-25T03:00:00+01:00 2026-10-26T03:00:00+01:00"},
		{"*/30 * * * *", "Europe/Berlin", "2026-03-29T01:00:00+01:00", "2026-03-29T01:30:00+01:00 2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00"},
		{"*/30 * * * *", "Europe/Berlin", "2026-10-25T01:59:00+02:00", "2026-10-25T02:00:00+02:00 2026-10-25T02:30:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T02:30:00+01:00 2026-10-25T03:00:00+01:00"},
		{"@hourly", "America/New_York", "2026-11-01T00:30:00-04:00", "2026-11-01T01:00:00-04:00 2026-11-01T01:00:00-05:00 2026-11-01T02:00:00-05:00"},
		{"30 2 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00+11:00", "2026-04-05T02:30:00+10:30 2026-04-06T02:30:00+10:30"}, // half an hour
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00+11:00", "2026-04-05T01:45:00+11:00 2026-04-06T01:45:00+10:30"}, // repeated
		{"0 0 * * *", "America/Santiago", "2026-09-05T12:00:00-04:00", "2026-09-06T01:00:00-03:00 2026-09-07T00:00:00-03:00"},     // no midnight
		{"15 1 29 2 *", "UTC", "2026-11-23T03:00:00+00:00", "2028-02-29T01:15:00+00:00"},
		{"0 9 * * 1-5", "Asia/Kolkata", "2026-11-20T10:00:00+05:30", "2026-11-23T09:00:00+05:30 2026-11-24T09:00:00+05:30"},
		{"0 9 * * 7", "UTC", "2026-11-23T00:00:00+00:00", "2026-11-29T09:00:00+00:00 2026-12-06T09:00:00+00:00"},
		{"0 9 * * 5-7", "UTC", "2026-11-23T00:00:00+00:00", "2026-11-27T09:00:00+00:00 2026-11-28T09:00:00+00:00 2026-11-29T09:00:00+00:00 2026-12-04T09:00:00+00:00"},
		{"0 0 13 * FRI", "UTC", "2026-11-12T00:00:00+00:00", "2026-11-13T00:00:00+00:00 2026-11-20T00:00:00+00:00"},  // either matches, as in cron
		{"0 0 */2 * MON", "UTC", "2026-11-01T00:00:00+00:00", "2026-11-09T00:00:00+00:00 2026-11-23T00:00:00+00:00"}, // both must match, since one starts with *
		{" @Daily ", "", "2026-11-23T03:00:00+00:00", "2026-11-24T00:00:00+00:00"},
	} {
		table, err := Parse(c.cron, c.zone)
		if err != nil {
			t.Error(err)
			continue
		}
		at, err := time.Parse(zoned, c.after)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for range strings.Fields(c.want) {
			at = table.Next(at)
			got = append(got, at.Format(zoned))
		}
		if is := strings.Join(got, " "); is != c.want {
			t.Errorf("%s in %s after %s:\n got %s\nwant %s", c.cron, c.zone, c.after, is, c.want)
		}
	}
}

// TestEachMinute: without changes of the clock the due times are the minutes that match the fields. A fixed time comes
// once a day in each zone.
func TestEachMinute(t *testing.T) {
	table, err := Parse("*/7 3-5 * * 0,3", "Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	next := table.Next(at.Add(-1))
	for range 15 * 24 * 60 {
		local := at.In(table.zone)
		want := local.Minute()%7 == 0 && local.Hour() >= 3 && local.Hour() <= 5 && (local.Weekday() == 0 || local.Weekday() == 3)
		if want != next.Equal(at) {
			t.Fatalf("%v is due: %v, but next is %v", local, want, next)
		}
		if want {
			next = table.Next(at)
		}
		at = at.Add(time.Minute)
	}
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Tehran", "UTC"} {
		for _, expression := range []string{"30 2 * * *", "0 0 * * *", "59 1 * * *", "0 3 * * *"} {
			table, err := Parse(expression, zone)
			if err != nil {
				t.Fatal(err)
			}
			days := map[string]int{}
			from := time.Date(2026, 1, 1, 0, 0, 0, 0, table.zone)
			table.Between(from.Add(-1), from.AddDate(2, 0, 0).Add(-1), func(due time.Time) bool {
				days[due.Format(time.DateOnly)]++
				return true
			})
			for day, n := range days {
				if n != 1 {
					t.Errorf("%s in %s: %d times on %s", expression, zone, n, day)
				}
			}
			if len(days) != 730 {
				t.Errorf("%s in %s: on %d days of 730", expression, zone, len(days))
			}
		}
	}
}

func TestBadCron(t *testing.T) {
	for _, bad := range []string{"", " ", "* * * *", "0 0 * * * *", "60 * * * *", "* 24 * * *", "0 0 0 * *", "0 0 * 13 *", "0 0 * * 8", "*/0 * * * *", "5-1 * * * *",
		"0 0 30 2 *", "@every 5m", "@every 1s", "@reboot", "TZ=UTC * * * * *", "TZ=0", "CRON_TZ=Europe/Berlin 0 0 * * *", "a b c d e", "* * * * *\x00",
		"0 0 * * 7/0", "1-2-3 * * * *", "1/2/3 * * * *", "*/-1 * * * *", strings.Repeat("1,", 200) + "1 * * * *"} {
		if _, err := Parse(bad, ""); holt.CodeOf(err) != holt.InvalidArgument || holt.AsError(err).Hint == "" {
			t.Errorf("%q: %v", clip(bad), err)
		}
	}
	for _, bad := range []string{"Local", "Nowhere/Land", "../etc/passwd", "/etc/localtime", strings.Repeat("a", 100), "Europe/\x00"} {
		if _, err := Parse("* * * * *", bad); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("zone %q: %v", clip(bad), err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"0 3 * * *", "*/15 8-18 * * MON-FRI", "0 0 * * 5-7/2", "@daily", "? ? ? ? ?", "1,2,3/4 * * * *"} {
		f.Add(s)
	}
	at := time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		table, err := Parse(s, "Europe/Berlin")
		if err != nil {
			return
		}
		last := at
		for range 5 {
			next := table.Next(last)
			if next.IsZero() {
				return // for years
			}
			if !next.After(last) || next.Second() != 0 {
				t.Fatalf("%q: after %v comes %v", s, last, next)
			}
			last = next
		}
	})
}
