# The variables that a terminal or SSH login was given count more than those of this directory.
if [ -r "${HOLT_GIVEN-}" ]; then
	. "$HOLT_GIVEN"
fi
unset HOLT_GIVEN
