"""`python -m benchmarks.policy_study`: which routing policy is best, and when. Results in results.json, read in
docs/policy-study.md, which is made from them: no number on that page is typed by hand."""
