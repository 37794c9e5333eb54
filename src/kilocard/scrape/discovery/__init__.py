"""Where replicas are: one file per source, all with start(report) and close().

Discovery says where replicas are. Whether they work is found out by using them: nothing here puts an ejected
replica back. A source that can't be reached changes nothing; only an answer of the source itself removes replicas.
"""
