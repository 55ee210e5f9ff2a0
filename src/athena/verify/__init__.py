"""What an upstream really does, measured: cases, judging, statistics, planning, verdicts and reports. No IO.

    cases       the battery: requests and what is expected of their answers; `importers` reads other verifiers' files
    judging     one answer, raw or through Athena, as marks: which metrics it passes
    statistics  intervals and sequential tests
    planning    which case is asked next, and when enough is known
    verdicts    marks of a whole run as rates with intervals, verdicts and the lift
    runs        a run as lines of a file, so that it can be resumed, reported and compared
    reports     JSON, JUnit, Markdown; `pages` for HTML
    profiling   what a run says about the settings of an upstream

`athena.shells.verify` asks the questions.
"""
