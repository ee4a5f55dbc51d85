/* The style sheet of all pages, of reports and of a running server: text, tables, meters, colours
 * that people who do not see all of them tell apart, in light and dark. It refers to nothing. */
#ifndef WEFT_BASE_PAGE_STYLE_H
#define WEFT_BASE_PAGE_STYLE_H

extern const char weft_page_style[];

#endif
